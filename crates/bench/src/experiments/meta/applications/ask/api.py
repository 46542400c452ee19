"""The front end: a route, /ask, which asks the back end.

    gunicorn "api:create('DIR')"     with the back end whose data are in DIR
    gunicorn "api:create()"          with a stub, which answers the same each time
"""

import pathlib

from flask import Flask, jsonify, request

# A longer question is cut.
LONGEST = 500


class Stub:
    """Stands for the back end where the front end is measured alone."""

    DOCUMENTS = [{"text": "lorem ipsum " * 40, "distance": 0.5}] * 4

    def ask(self, question):
        return self.DOCUMENTS


def create(directory=None):
    app = Flask(__name__)
    if directory is None:
        backend = Stub()
    else:
        # The stub's process has no need of the model.
        from retrieval import Retrieval

        backend = Retrieval(pathlib.Path(directory))

    @app.post("/ask")
    def ask():
        payload = request.get_json(silent=True)
        question = payload.get("question") if isinstance(payload, dict) else None
        if not isinstance(question, str) or not question.strip():
            return jsonify(error='write {"question": "..."}'), 400
        question = " ".join(question.split())[:LONGEST]
        return jsonify(question=question, documents=backend.ask(question))

    return app
