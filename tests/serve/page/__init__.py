"""The pages. A package, so that its server and its browser end with it: other tests run event loops of their own."""
