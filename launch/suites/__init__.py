"""What `launch.benchmark` can measure: one subject a file, a function a suite."""
