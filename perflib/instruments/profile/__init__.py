"""What a program does while one event is processed: its log first, its profile later."""
