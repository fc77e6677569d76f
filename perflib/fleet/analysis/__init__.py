"""What a farm's runs say: machines compared with each other, and one machine over days."""
