"""What `xts capture` writes: which frames are wanted, and the file for Wireshark."""
