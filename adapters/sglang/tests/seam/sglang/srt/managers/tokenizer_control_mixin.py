class TokenizerControlMixin:
    async def release_memory_occupation(self, obj, request=None):
        pass

    async def resume_memory_occupation(self, obj, request=None):
        pass
