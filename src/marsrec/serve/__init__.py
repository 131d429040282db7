"""Recommendations over HTTP.

A request walks down this map, its answer back up:

| what | where |
|---|---|
| the application and its process; several of them | `app`, with `settings`; `supervisor` and `member` |
| connections | `connections` |
| what a request must pass first; how errors look | `guard`, `refusals` |
| the way past the framework, for what is asked most | `direct` |
| **a route, what it takes and what it answers** | `endpoints/`: `recommend`, `users`, `items`, `model`, `state` |
| what several endpoints take or answer | `schemas`, filled by `rendering` and `fragments` |
| all that a running server holds | `service`, with `metrics` |
| **the work**: many jobs at once | `worker`, fed by `batching` |
| loaded models, and their fast ranking of large catalogs | `models`, `shortlist` |
| users' histories and live sessions | `histories` |
| events on disk | `store`, `postgres` |
| ids as text, and finding them | `ids`, `search` |
| the page and the API reference, clients like any other | `page/` |

A new endpoint goes into the file of its subject under `endpoints/`: schemas and route stand together. If it computes
something new, it brings a job in `worker`; if it reads something new from disk, a method of `store`.
"""
