"""Values are of the types that annotations declare: arguments of functions, fields of documents."""
