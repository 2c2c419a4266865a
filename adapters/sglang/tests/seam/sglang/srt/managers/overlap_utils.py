from sglang.srt.utils.common import is_cuda

_is_cuda = is_cuda()
