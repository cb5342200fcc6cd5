"""The screens of `xts top`."""
