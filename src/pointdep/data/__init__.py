"""What comes in and goes out: users' tables as numbers, files, and tasks with a known answer."""
