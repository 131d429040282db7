"""Recommendations over HTTP.

A request walks through app, guard, api, batching, answers, live and store, in this order.
"""
