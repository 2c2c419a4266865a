"""An implementation in a package of its own, my_vendor_plugin, which this program never imports.

By the name of the module:

    $ PYTHONPATH=adapters/te/examples/my_vendor_plugin TE_FL_PLUGIN_MODULES=my_vendor_plugin \
        TE_FL_PREFER=vendor python adapters/te/examples/outtree.py

or installed, found by its entry point:

    $ pip install --no-deps adapters/te/examples/my_vendor_plugin
    $ TE_FL_PREFER=vendor python adapters/te/examples/outtree.py
"""

import torch

from te_fl.core import get_manager

manager = get_manager()
output, *_, rsigma = manager.call("rmsnorm_fwd", torch.randn(2, 4, 8), torch.ones(8), eps=1e-5)
print(f"output {tuple(output.shape)}, rsigma {tuple(rsigma.shape)}")
