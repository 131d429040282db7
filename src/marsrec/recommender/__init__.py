"""The class people use, and the one way from events and a moment to an answer."""

from marsrec.recommender.explanation import Explanation
from marsrec.recommender.recommender import Recommender
from marsrec.recommender.session import Session

__all__ = ["Explanation", "Recommender", "Session"]
