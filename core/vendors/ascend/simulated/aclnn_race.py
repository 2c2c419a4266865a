"""Work of two streams in one workspace; prints what was recorded."""

from __future__ import annotations

import json

from core.vendors.ascend.simulated.aclnn import Aclnn


def main() -> None:
    acl = Aclnn()
    streams = [acl.prepare(), acl.stream()]
    workspace = acl.malloc(1 << 20)
    tensors = [(acl.tensor([1.0], [1]), acl.tensor(None, [1])) for _ in streams]
    for _ in range(40):
        for stream, (x, out) in zip(streams, tensors, strict=True):
            size, executor = acl.plan("aclnnNeg", x, out)
            acl.aclnnNeg(workspace, size, executor, stream)
    for stream in streams:
        acl.aclrtSynchronizeStream(stream)
    print(json.dumps(acl.misuses()))


if __name__ == "__main__":
    main()
