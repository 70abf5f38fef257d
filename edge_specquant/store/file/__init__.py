"""The store's file: opened, checked, migrated, backed up."""
