class TorchMemorySaverAdapter:
    @staticmethod
    def create(enable: bool):
        return enable
