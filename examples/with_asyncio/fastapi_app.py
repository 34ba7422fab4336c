"""A web application that sends each posted order. It needs fastapi; here httpx calls it, without a port.

Serve it: uvicorn fastapi_app:app --app-dir examples/with_asyncio
Run it: python examples/with_asyncio/fastapi_app.py
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI, HTTPException, Request

from splashdam.aio import AsyncioKafkaProducer
from splashdam.errors import KafkaError, WouldBlock


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
    # Opened in the worker, after the fork, and closed with it: accepted records are delivered.
    async with AsyncioKafkaProducer(bootstrap_servers="embedded:./data", linger_ms=1) as producer:
        await producer.prepare("orders")
        app.state.producer = producer
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{customer}", status_code=201)
async def order(customer: str, request: Request) -> dict[str, int]:
    body = await request.body()
    try:
        # send_nowait() does not wait for memory: while the cluster is slow or down, buffer_memory fills up,
        # and then requests are refused instead of piling up here.
        future = request.app.state.producer.send_nowait("orders", body, key=customer.encode())
    except WouldBlock as full:
        raise HTTPException(503, f"busy: {full.what}", headers={"Retry-After": "1"}) from full
    try:
        metadata = await future
    except KafkaError as error:
        raise HTTPException(502, "not stored") from error
    return {"partition": metadata.partition, "offset": metadata.offset}


async def main() -> None:
    transport = httpx.ASGITransport(app)
    async with lifespan(app), httpx.AsyncClient(transport=transport, base_url="http://orders") as client:
        answers = await asyncio.gather(*(client.post("/orders/anna", content=b"planks") for _ in range(20)))
        print(sorted({answer.status_code for answer in answers}), "to", len(answers), "requests")
        last = await client.post("/orders/anna", content=b"planks")
        print("the last record is at offset", last.json()["offset"])


if __name__ == "__main__":
    asyncio.run(main())
