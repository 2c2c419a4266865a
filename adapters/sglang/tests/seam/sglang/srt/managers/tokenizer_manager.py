class TokenizerManager:
    def _create_tokenized_object(
        self, obj, input_text, input_ids, input_embeds=None, mm_inputs=None, token_type_ids=None
    ):
        return obj

    def _dispatch_to_scheduler(self, obj):
        pass

    async def generate_request(self, obj, request=None):
        yield obj
