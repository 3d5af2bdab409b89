"""What a recording holds, for other tools: CSV, Parquet, JSON Lines, TensorBoard."""
