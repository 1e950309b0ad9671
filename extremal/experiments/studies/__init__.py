"""What one trial computes: functions of parameters and a generator, named by the records."""
