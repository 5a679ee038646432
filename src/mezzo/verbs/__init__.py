"""What mezzo does, a file for each verb, named as the public name is."""
