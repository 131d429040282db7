"""One history at a time: the form of a model that answers at once, and that leaves the house as a graph.

A part may describe itself a second time, for a single history without padding, in the operations of `Arrays`
(`Encoder.fast`, `Readout.fast`, `Scorer.fast`). The operations have two meanings: computed at once by numpy and a few
compiled kernels (`numpy_arrays`), or written down as nodes of an ONNX graph (`marsrec.recommender.onnx_arrays`). A part
that does not is computed by torch, and is not exported.
"""
