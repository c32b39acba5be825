"""Compiled loops on plain arrays: nothing here knows of estimators or threads."""
