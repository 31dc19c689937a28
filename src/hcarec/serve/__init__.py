"""The live service: recommendations that know of each event the moment it happens."""
