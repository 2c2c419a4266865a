class TokenizerControlMixin:
    async def start_expert_distribution_record(self):
        pass

    async def stop_expert_distribution_record(self):
        pass

    async def dump_expert_distribution_record(self):
        pass

    async def release_memory_occupation(self, obj, request=None):
        pass

    async def resume_memory_occupation(self, obj, request=None):
        pass
