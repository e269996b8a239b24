"""What the estimators are worth: runs on tasks with a known answer."""
