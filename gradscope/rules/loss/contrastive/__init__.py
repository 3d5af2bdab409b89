"""Rules on contrastive losses."""
