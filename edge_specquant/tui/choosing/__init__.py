"""What a person can choose: models, presets, looks."""
