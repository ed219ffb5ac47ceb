"""`orbitmq doctor`: facts of a directory or of servers, and what is wrong in them. It changes nothing."""
