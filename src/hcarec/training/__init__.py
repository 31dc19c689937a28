"""Training: the loop over epochs, the trainers that learn in one, checkpoints and plans."""

from hcarec.training.callbacks import Callback
from hcarec.training.run import chosen_epochs, train

__all__ = ["Callback", "chosen_epochs", "train"]
