"""What several rules read of a recording: causes, intent and wording, apart from the rules."""
