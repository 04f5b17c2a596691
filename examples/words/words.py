class Split:
    def predict(self, batch):
        return [text.decode().split() for text in batch]  # one list of children per input


class Shout:
    def predict(self, batch):
        return [word.upper() for word in batch]  # one answer per input
