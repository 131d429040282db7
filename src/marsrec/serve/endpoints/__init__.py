"""The addresses of the service by subject: what each takes, what it answers, and its route."""
