"""What rules on several ranks share."""
