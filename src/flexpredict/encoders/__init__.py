"""Any encoder behind one face."""
