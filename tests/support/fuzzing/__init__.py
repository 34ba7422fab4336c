"""What nobody should send, and bugs that are planted to be found."""
