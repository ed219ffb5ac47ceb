"""What producers, consumers and admin of one client id share."""
