class GuidanceGrammar:
    @staticmethod
    def apply_vocab_mask(logits, vocab_mask):
        raise RuntimeError("Unsupported device")
