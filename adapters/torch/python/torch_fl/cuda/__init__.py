"""Where torch asks for CUDA by name, under the vendor that torch calls cuda."""
