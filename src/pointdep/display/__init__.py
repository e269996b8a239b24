"""Results as text, HTML and figures: functions of plain numbers."""
