"""From the user's file or objects to a `Target`: model, batch, loss and optimizer."""
