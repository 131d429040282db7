"""The lab: trained models become results, and results become the paper's tables and figures."""
