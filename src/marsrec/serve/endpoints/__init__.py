"""The addresses of the service by subject: what each takes, what it answers, and its route."""

from marsrec.serve.endpoints import items, model, recommend, state, users

ROUTERS = (recommend.router, users.router, items.router, model.router, state.router)
"""In the order in which they are tried: /users/{user} takes all that routes before it left."""
