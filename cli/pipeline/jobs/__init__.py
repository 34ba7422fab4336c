"""``splashdam pipeline …``: one file per pipeline, imported when it is asked for."""
