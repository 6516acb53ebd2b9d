"""This project against others and against itself, measured side by side."""
