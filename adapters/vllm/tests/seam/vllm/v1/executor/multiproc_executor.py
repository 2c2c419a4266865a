"""The executor of several processes, with its queues of answers."""


class MultiprocExecutor:
    def _init_executor(self) -> None:
        self.response_mqs = []
