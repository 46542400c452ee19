"""The back end: an embedding of a question, and the chunks of text nearest to it.

WordLlama averages the embeddings of a text's tokens; its model is part of its package.
Voyager looks for neighbours in a graph (HNSW), by the cosine of the angle.

    python retrieval.py DIR     makes DIR/index.voy from DIR/corpus.txt, a chunk a line
"""

import pathlib
import sys

import numpy
import voyager
import wordllama

# As in the paper.
NEAREST = 4
DIMENSIONS = 256
# How many candidates a search keeps, and how much it finds at least of what an
# exhaustive one does.
BREADTH = 128
LEAST_FOUND = 0.95
# Questions by which that is checked.
TRIALS = 200


def model():
    # Named as its own cache: 0.4.0 looks for its tokenizer in a directory that is called
    # otherwise. Nothing is downloaded.
    package = pathlib.Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(
        dim=DIMENSIONS, cache_dir=package, disable_download=True
    )


def chunks(directory):
    return (directory / "corpus.txt").read_text().splitlines()


class Retrieval:
    """All that is loaded: model, index, chunks."""

    def __init__(self, directory):
        self.model = model()
        self.index = voyager.Index.load(str(directory / "index.voy"))
        self.chunks = chunks(directory)

    def near(self, question):
        """The nearest chunks, as places and distances, nearest first."""
        vector = self.model.embed([question], norm=True)[0]
        return self.index.query(vector, k=NEAREST, query_ef=BREADTH)

    def ask(self, question):
        """The nearest chunks, as the API answers."""
        return [
            {"text": self.chunks[place], "distance": round(float(distance), 4)}
            for place, distance in zip(*self.near(question))
        ]


def make(directory):
    """Makes the index, the same one each time, and checks that it finds."""
    texts = chunks(directory)
    vectors = model().embed(texts, norm=True)
    index = voyager.Index(
        voyager.Space.Cosine, num_dimensions=DIMENSIONS, random_seed=1
    )
    # One thread: with several the graph depends on who comes first.
    index.add_items(vectors, num_threads=1)
    index.save(str(directory / "index.voy"))
    retrieval = Retrieval(directory)
    trials = texts[:: max(len(texts) // TRIALS, 1)]
    found = 0
    for text in trials:
        # The beginning of a chunk is a question that has an answer.
        question = text[: len(text) // 2]
        vector = retrieval.model.embed([question], norm=True)[0]
        exact = numpy.argsort(-(vectors @ vector), kind="stable")[:NEAREST]
        found += len(set(exact) & set(retrieval.near(question)[0]))
    share = found / (NEAREST * len(trials))
    print(f"{len(texts)} chunks; the index finds {share:.3f} of what is nearest")
    if share < LEAST_FOUND:
        sys.exit(f"the index finds less than {LEAST_FOUND} of what is nearest")


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]))
