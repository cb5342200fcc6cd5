"""Tenants: their accounts, what they are guaranteed, what they are refused."""
