"""Questions about models in training: their parameters, gradients, optimizers, loaders and saved states."""
