"""Planning algorithms, one file each, found by discovery."""
