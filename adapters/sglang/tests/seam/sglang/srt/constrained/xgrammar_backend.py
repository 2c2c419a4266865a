class XGrammarGrammar:
    def apply_vocab_mask(self, logits, vocab_mask):
        raise RuntimeError("Unsupported device")
